"""What the command line and `import covey` share: finding bags, sending files, and the look of
numbers, tables and progress. No command is here, and nothing that only one of the two uses."""
