"""Values of parameters and what people write about them: spaces, numbers, amounts, time spans,
columns and comparisons, texts with placeholders. Nothing here knows of bags or pilots."""
