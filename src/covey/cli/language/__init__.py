"""Commands about policies, ClassAd expressions and simulated worlds."""
