"""From a model and a store to the weights that a federation starts from: trained here, published, or a file's."""
