//go:build !race

package flight

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// Ranks that keep the most records answer in full. The race detector makes this four times as slow.
func TestRanksWithVeryManyRecords(t *testing.T) {
	const ranks, most = 5, 65536
	records := make([]Record, most)
	now := time.Now().UnixNano()
	for i := range records {
		records[i] = Record{Name: fmt.Sprint("DistributedOptimizer.Allreduce.layer4.2.conv3.weight ", i),
			Op: "ALLREDUCE", DType: "float32", Shape: []int64{2048, 512, 1, 1}, Sequence: uint64(i), Submitted: now,
			Agreed: now, Started: now, Ended: now}
	}
	for r := range ranks {
		serve(t, func() *Dump {
			return &Dump{Job: "j", Rank: r, Size: ranks, PID: os.Getpid(), Time: time.Now(), Records: records}
		})
	}
	dumps, silent, err := Ask(os.Getpid())
	if err != nil || len(dumps) != ranks || len(silent) > 0 {
		t.Fatalf("%d dumps, silent %v, %v", len(dumps), silent, err)
	}
	for _, d := range dumps {
		if len(d.Records) != most {
			t.Errorf("%d records of rank %d", len(d.Records), d.Rank)
		}
	}
}

// A rank whose answer is too long does not count as silent.
func TestAnAnswerThatIsTooLong(t *testing.T) {
	long := strings.Repeat("x", maxDump)
	serve(t, func() *Dump { return &Dump{Job: long, Size: 1, PID: os.Getpid()} })
	if _, _, err := Ask(os.Getpid()); err == nil || !strings.Contains(err.Error(), "too many records") {
		t.Errorf("got %v", err)
	}
}
