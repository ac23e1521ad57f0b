"""What every recipe shares and no reader comes to see."""
