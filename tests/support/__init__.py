"""What the tests share: real servers, fresh databases, every saver, and the docs' code blocks."""
