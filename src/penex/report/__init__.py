"""Tables, figures and pages: functions of records. Nothing here trains."""
