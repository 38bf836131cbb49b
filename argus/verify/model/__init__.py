"""A kernel as integer relations: sites, times, accesses and data-flow, with the engines that decide about them."""
