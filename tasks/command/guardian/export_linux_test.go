package guardian

// RunID returns what stands in the program's environment as
// SOLOBEAT_RUN_TASK_ID.
func (p *Process) RunID() string { return p.runID }

// PID returns the program's process id, 0 if the guardian was killed before it
// could tell.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// GuardianPID returns the guardian's process id, 0 where there is none.
func (p *Process) GuardianPID() int { return p.cmd.Process.Pid }
