"""Every learner in every use."""
