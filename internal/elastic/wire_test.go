package elastic

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/gorovod/gorovod/internal/elastic/membership"
)

func TestFrames(t *testing.T) {
	for _, m := range []Message{
		{Type: TypePing},
		{Type: TypeReady, Number: 3, Registration: &membership.Registration{Commit: -1, Intact: true,
			Sets: [][]int{{0, 2}, {1}}, Trouble: "x"}},
		{Type: TypePlace, Number: 3, Assignment: &Assignment{Epoch: 7, Place: membership.Place{Worker: 4, Host: "a",
			Rank: 1, Size: 2}, Addrs: []string{"a:1"}, Sync: true}},
		{Type: TypeSaved, Commit: 1 << 40},
		{Type: TypeUpdate, Stamp: 1 << 40, Update: membership.Added | membership.Removed},
	} {
		frame, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		r := bytes.NewReader(append(frame, "next"...))
		got, err := Decode(r)
		if err != nil || !reflect.DeepEqual(got, m) || r.Len() != 4 {
			t.Errorf("got %+v %v, want %+v", got, err, m)
		}
		for i := range frame {
			if got, err := Decode(bytes.NewReader(frame[:i])); err == nil {
				t.Errorf("%d of %d bytes give %+v", i, len(frame), got)
			}
		}
	}
	if _, err := Encode(Message{Type: TypeDismiss, Text: string(make([]byte, maxFrame))}); err == nil {
		t.Error("a frame that is too long is sent")
	}
}

func TestEpochsHaveKeysOfTheirOwn(t *testing.T) {
	key := []byte("secret")
	if bytes.Equal(EpochKey(key, 1), EpochKey(key, 2)) || bytes.Equal(EpochKey(key, 1), EpochKey([]byte("other"), 1)) ||
		bytes.Equal(EpochKey(key, 1), key) {
		t.Error("keys are equal")
	}
	if !bytes.Equal(EpochKey(key, 1), EpochKey(key, 1)) {
		t.Error("the two sides have different keys")
	}
}

// For any input Decode returns an error, or a message that Encode can send again.
func FuzzDecode(f *testing.F) {
	for _, m := range []Message{{Type: TypePong},
		{Type: TypeReady, Registration: &membership.Registration{Sets: [][]int{{1}}}},
		{Type: TypePlace, Assignment: &Assignment{}}} {
		frame, _ := Encode(m)
		f.Add(frame)
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(bytes.NewReader(data))
		if err != nil {
			return
		}
		if _, err := Encode(m); err != nil && len(data) < maxFrame/8 {
			t.Errorf("%+v cannot be sent: %v", m, err)
		}
	})
}
