"""One paper: its numbers, and what our records say of them."""
