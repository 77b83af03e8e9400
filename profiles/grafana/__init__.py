"""A dashboard for Grafana."""
