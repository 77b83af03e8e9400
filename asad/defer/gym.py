"""`asad_papers.osdec.deferral_gym` by its old name, until the next release."""

from asad.moved import moved

__getattr__ = moved(__name__, "asad_papers.osdec.deferral_gym")
