package spelling

import "testing"

func TestDidYouMean(t *testing.T) {
	known := []string{"run", "bench", "doctor", "man", "completion"}
	for word, want := range map[string]string{"dcotor": ", did you mean doctor?", "benhc": ", did you mean bench?",
		"ran": ", did you mean run or man?", "rnu": ", did you mean run?",
		"x": "", "": "", "train.py": "", "python": ""} {
		if got := DidYouMean(word, known); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}
