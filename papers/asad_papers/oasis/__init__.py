"""OASiS: online admission of elastic jobs; the evaluation of the paper."""
