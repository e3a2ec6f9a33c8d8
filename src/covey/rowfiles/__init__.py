"""Files whose rows are parameters: one reading of them for whoever submits and who serves."""
