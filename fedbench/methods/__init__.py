"""What a federation trains, sends and averages. One public file per method: pure tree arithmetic, no disk, no clock."""
