package autotune

// maxOther is the number of samples of other work that a search accepts in any case.
const maxOther = 100

// Work tells the samples of a job's main work from those of other work, such as the validation between epochs, because
// the speed of one says nothing about the other. The samples that move most bytes are main work. Samples are of one
// kind if they move half to twice as many bytes.
type Work struct {
	most          int64 // bytes of the greatest sample while learning
	alike, others int
}

// Alike reports whether a sample that moved that many bytes is of the main work. While learning, it takes every sample
// for main work.
func (w *Work) Alike(bytes int64, learning bool) bool {
	if learning {
		w.most = max(w.most, bytes)
		return true
	}
	if bytes >= w.most/2 && bytes/2 <= w.most {
		w.alike++
		return true
	}
	w.others++
	return false
}

// Lost reports that for a long time most samples were of other work. Then the job no longer does the work with which
// the search began, and further trials would cost too much.
func (w *Work) Lost() bool { return w.others > maxOther+w.alike }
