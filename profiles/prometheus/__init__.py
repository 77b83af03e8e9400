"""Rules for Prometheus: what it computes beforehand, and when it calls an operator."""
