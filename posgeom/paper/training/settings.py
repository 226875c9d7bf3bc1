"""What all models of both studies have in common: size, optimizer, what is hidden."""

DIM, HEADS, LAYERS = 32, 2, 2
WIDER = 2  # how much wider a hidden layer is than the model
BATCH = 64  # rows a step
RATE = 3e-3  # of Adam at the start; it falls to 0 by a cosine
HIDDEN_SHARE = 0.15  # of the tokens, where hidden ones are to be guessed.  Devlin et al. (2019)
COMMON = (DIM, HEADS, LAYERS, WIDER, BATCH, RATE, HIDDEN_SHARE)
