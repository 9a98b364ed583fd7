"""How a model is called: with given inputs, with made-up ones, and watched layer by layer."""
