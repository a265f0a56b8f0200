"""Grant -> TicketBundle: short-lived service tickets in a person's name, and nothing that could make more of them."""
