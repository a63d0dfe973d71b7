package observer

import (
	"io"

	"github.com/gorovod/gorovod/internal/base/jsonframe"
	"github.com/gorovod/gorovod/internal/base/shape"
	"github.com/gorovod/gorovod/internal/base/version"
)

// maxFrame bounds a frame: figures of the greatest size, in base64, and what is around them.
const maxFrame = 64 << 10

// News is a frame from the serving process. Each has one of the fields.
type News struct {
	Hello   string   `json:"hello,omitempty"` // Shape, the first frame
	World   *World   `json:"world,omitempty"`
	Joined  *int     `json:"joined,omitempty"` // how many ranks have joined, the answer to a Wish to Ask
	Figures *Figures `json:"figures,omitempty"`
	Failure *Failure `json:"failure,omitempty"`
	Over    *Over    `json:"over,omitempty"`
}

// World is a world of ranks that begins to form.
type World struct {
	Size  int      `json:"size"`
	From  uint64   `json:"from"`  // its first generation
	Peers []string `json:"peers"` // where its ranks meet
}

// Figures are a rank's figures: see rendezvous.Server.Figures.
type Figures struct {
	Rank       int    `json:"rank"`
	Generation uint64 `json:"generation"`
	Host       string `json:"host"`
	Value      []byte `json:"value"`
}

// Failure says why the operations of all ranks have failed, in a generation.
type Failure struct {
	Generation uint64 `json:"generation"`
	Cause      string `json:"cause"`
}

// Over says that rank 0 has left its world.
type Over struct {
	Failure string `json:"failure,omitempty"` // why its operations fail; empty if all is well
}

// Wish is a frame from the observer.
type Wish struct {
	Ask     bool   `json:"ask,omitempty"`     // the ranks' figures
	Inspect *[]int `json:"inspect,omitempty"` // see rendezvous.Server.Inspect
}

// Shape is the same in all builds whose frames are.
func Shape() string { return version.Version + " " + shape.Digest(News{}, Wish{}) }

func (n *News) encode() ([]byte, error) { return jsonframe.Append(nil, n, maxFrame) }

// Read blocks until a frame of the serving process has come.
func (n *News) Read(r io.Reader) error { return jsonframe.Read(r, n, maxFrame) }

// Write sends a frame of the observer.
func (w *Wish) Write(to io.Writer) error {
	frame, err := jsonframe.Append(nil, w, maxFrame)
	if err != nil {
		return err
	}
	_, err = to.Write(frame)
	return err
}

func (w *Wish) read(r io.Reader) error { return jsonframe.Read(r, w, maxFrame) }
