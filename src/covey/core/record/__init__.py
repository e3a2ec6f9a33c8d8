"""What core keeps, hears and asks for: records, events, actions, legal states, classes of tasks. No
decisions: those are in the packages beside this one."""
