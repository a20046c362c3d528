"""What a message costs and what of it arrives. One public file per codec; the only place that knows bytes."""
