package demo

import (
	"bytes"
	"fmt"
	"maps"
	"math"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Summary is summary.json. All but UnguardedReports are about the guarded
// scenes.
type Summary struct {
	Ticks            int     `json:"ticks"`
	Published        int     `json:"published"`
	Runs             int     `json:"runs"`
	StoodAside       int     `json:"stood_aside"`
	Reports          int     `json:"reports"`
	Duplicates       int     `json:"duplicates"`
	Takeovers        int     `json:"takeovers"`
	Renewals         int     `json:"renewals"`
	Outlived         int     `json:"outlived"`
	Lost             int     `json:"lost"`
	UnguardedReports int     `json:"unguarded_reports"`
	Timeline         []Event `json:"timeline"`
}

// counters are the sums of one scrape that the summary is made of.
type counters struct {
	published, claimed, takeovers, stoodAside, renewals, outlived, lost float64
}

func (c *counters) add(o counters) {
	c.published += o.published
	c.claimed += o.claimed
	c.takeovers += o.takeovers
	c.stoodAside += o.stoodAside
	c.renewals += o.renewals
	c.outlived += o.outlived
	c.lost += o.lost
}

func parseCounters(scrape []byte) (counters, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	fams, err := p.TextToMetricFamilies(bytes.NewReader(scrape))
	if err != nil {
		return counters{}, fmt.Errorf("demo: metrics: %w", err)
	}
	sum := func(name string, labels ...string) float64 {
		var total float64
		for _, m := range fams[name].GetMetric() {
			if matches(m, labels) {
				total += m.GetCounter().GetValue()
			}
		}
		return total
	}
	return counters{
		published:  sum("solobeat_schedule_ticks_total", "outcome", "enqueued"),
		claimed:    sum("solobeat_record_decisions_total", "decision", "claimed"),
		takeovers:  sum("solobeat_record_decisions_total", "decision", "takeover"),
		stoodAside: sum("solobeat_stood_aside_total"),
		renewals:   sum("solobeat_lock_renewals_total", "result", "ok"),
		outlived:   sum("solobeat_lock_outlived_total"),
		lost:       sum("solobeat_lock_lost_total"),
	}, nil
}

func matches(m *dto.Metric, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		found := false
		for _, l := range m.GetLabel() {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}

// summarize joins the scrapes with what stands in commits.jsonl.
func summarize(scrapes [][]byte, commits []Commit, timeline []Event) (Summary, map[string]int, error) {
	var c counters
	for _, s := range scrapes {
		one, err := parseCounters(s)
		if err != nil {
			return Summary{}, nil, err
		}
		c.add(one)
	}
	n := func(v float64) int { return int(math.Round(v)) }
	s := Summary{
		Published: n(c.published), Runs: n(c.claimed + c.takeovers), StoodAside: n(c.stoodAside), Takeovers: n(c.takeovers),
		Renewals: n(c.renewals), Outlived: n(c.outlived), Lost: n(c.lost), Timeline: timeline,
	}
	perTick := map[string]int{}
	for _, line := range commits {
		if !line.Guarded {
			s.UnguardedReports++
			continue
		}
		s.Reports++
		perTick[line.Tick]++
	}
	for n := range maps.Values(perTick) {
		s.Duplicates += n - 1
	}
	return s, perTick, nil
}
