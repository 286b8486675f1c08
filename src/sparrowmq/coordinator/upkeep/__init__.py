"""What the services of disks, retention, consistency and governance decide: values in, values out, no I/O."""
