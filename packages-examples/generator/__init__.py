"""What regenerate.py is made of: networks, exporters, side files, configs, packages."""
