"""CoMAS and its siblings on OpenRLHF: co-evolving agents that learn from their own discussions."""
