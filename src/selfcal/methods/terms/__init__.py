"""The terms of the losses, one file each: a function of its constants that returns a `Term`."""
