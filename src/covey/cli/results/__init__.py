"""Commands about what came of tasks: results, failures, logs, files, explanations."""
