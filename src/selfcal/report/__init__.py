"""Tables, figures, pictures and pages, from results alone: this room knows neither networks nor training."""
