"""`asactl calibrate`: what sharing a core costs on this machine. The node actor imports nothing of it."""
