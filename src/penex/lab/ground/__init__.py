"""What the laboratory stands on: files, locks, errors, sentences, processes, chance, memory."""
