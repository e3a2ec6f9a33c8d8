"""Commands to try things out: policies, ClassAd expressions, simulated worlds."""
