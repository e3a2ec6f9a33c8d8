"""What the command line and `import covey` share: finding bags, sending files, and how numbers,
tables and progress look to a person. No command is in here, and nothing that only one of the two
uses."""
