"""Services by which the processes of two jobs find each other."""
