"""OgaSched: online placement by gradient ascent; the evaluation of the paper."""
