"""OSDEC: when deferrable jobs start; the evaluation of the paper."""
