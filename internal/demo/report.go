package demo

import (
	"context"
	_ "embed" // the orders file
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed orders.csv
var ordersCSV string

// Report is one hour's sales report.
type Report struct {
	Tick   string  `json:"tick"`
	Orders int     `json:"orders"`
	Total  float64 `json:"total"`
}

// Commit is one line of commits.jsonl: a report that was formed. The parent
// counts these lines, not counters.
type Commit struct {
	Tick    string `json:"tick"`
	PID     int    `json:"pid"`
	Fence   uint64 `json:"fence"`
	Guarded bool   `json:"guarded"`
	MS      int64  `json:"ms"`
}

// formReport adds up the orders file, takes its time, and commits.
func formReport(ctx context.Context, dir, tick string, takes time.Duration, fence uint64, guarded bool) (Report, error) {
	began := time.Now()
	r, err := addUp(tick)
	if err != nil {
		return r, err
	}
	timer := time.NewTimer(time.Until(began.Add(takes)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return r, context.Cause(ctx)
	case <-timer.C:
	}
	return r, commit(dir, Commit{Tick: tick, PID: os.Getpid(), Fence: fence, Guarded: guarded, MS: time.Now().UnixMilli()})
}

func addUp(tick string) (Report, error) {
	rows, err := csv.NewReader(strings.NewReader(ordersCSV)).ReadAll()
	if err != nil {
		return Report{}, fmt.Errorf("demo: orders file: %w", err)
	}
	r := Report{Tick: tick}
	for _, row := range rows[1:] {
		n, nerr := strconv.Atoi(row[2])
		price, perr := strconv.ParseFloat(row[3], 64)
		if nerr != nil || perr != nil {
			return r, fmt.Errorf("demo: orders file: bad row %v", row)
		}
		r.Orders++
		r.Total += float64(n) * price
	}
	return r, nil
}

// commit appends one line in one write, so that lines of several processes
// never mix, outside lock and record.
func commit(dir string, c Commit) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, commitsFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(append(line, '\n')); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

func readCommits(dir string) ([]Commit, error) {
	b, err := os.ReadFile(filepath.Join(dir, commitsFile))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Commit
	for line := range strings.Lines(string(b)) {
		var c Commit
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return nil, fmt.Errorf("demo: %s: %w", commitsFile, err)
		}
		all = append(all, c)
	}
	return all, nil
}
