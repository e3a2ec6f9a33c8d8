"""The command line: one module per noun, loaded when its command is used."""
