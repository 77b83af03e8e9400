"""Data that is installed with asad; see the files beside this one."""
