"""Study S12: how many events one, two and three proxies carry."""
