"""What can go wrong here: with this release, this saver, this database."""
