package scheduler

import "time"

func (o *Observer) tick(schedule string, outcome TickOutcome, n int) {
	if o.Tick != nil && n > 0 {
		o.Tick(schedule, outcome, n)
	}
}

func (o *Observer) lag(schedule string, d time.Duration) {
	if o.Lag != nil {
		o.Lag(schedule, d)
	}
}

func (o *Observer) next(schedule string, tick time.Time) {
	if o.Next != nil {
		o.Next(schedule, tick)
	}
}

func (o *Observer) lastDue(schedule string, tick time.Time) {
	if o.LastDue != nil {
		o.LastDue(schedule, tick)
	}
}

func (o *Observer) heartbeat(at time.Time) {
	if o.Heartbeat != nil {
		o.Heartbeat(at)
	}
}

func (o *Observer) standAside(schedule string) {
	if o.StandAside != nil {
		o.StandAside(schedule)
	}
}

func (o *Observer) quarantine(schedule string, err error) {
	if o.Quarantined != nil {
		o.Quarantined(schedule, err)
	}
}

func (o *Observer) staleFor(schedule string, d time.Duration) {
	if o.StaleFor != nil {
		o.StaleFor(schedule, d)
	}
}

func (o *Observer) registered() {
	if o.Registered != nil {
		o.Registered()
	}
}

func (o *Observer) fired(schedule string, tick Occurrence, taskID string) {
	if o.Fired != nil {
		o.Fired(schedule, tick, taskID)
	}
}

func (o *Observer) replaced(jobs []*Job) {
	if o.Replaced != nil {
		o.Replaced(jobs)
	}
}
