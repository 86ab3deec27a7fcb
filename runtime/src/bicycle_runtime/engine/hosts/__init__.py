"""The hosts of a job: compatibility, shipment, placement of tasks. No PySpark. No PySpark."""
