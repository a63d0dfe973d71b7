package autotune

// maxOther is how many samples of other work a search bears in any case.
const maxOther = 100

// Work tells the samples of a job's main work from those of other work, such as
// the validation between epochs: how fast one of them went says nothing about
// the other. Main work is what moves most bytes, and samples that move like many,
// half to twice as many, are of one kind.
type Work struct {
	most          int64 // bytes of the greatest sample while learning
	alike, others int
}

// Alike reports whether a sample that moved so many bytes is of the main work.
// While it is learning what that is, it takes all.
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

// Lost reports that most samples were of other work for long: the job does not do
// any more what the search began with, and what it tries costs more than it may.
func (w *Work) Lost() bool { return w.others > maxOther+w.alike }
