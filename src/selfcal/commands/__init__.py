"""The commands by what they are for; each a thin layer over the Python API, which is imported only when it runs."""
