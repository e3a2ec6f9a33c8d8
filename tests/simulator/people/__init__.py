"""Those who use covey in a world: owners of bags, and the administrator of sites. They see only
what the server answers, and ask again until it does. Nothing here runs tasks or judges."""
