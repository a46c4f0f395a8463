package alerts

// Files returns what is generated, by path relative to the repository.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, write := range map[string]func() ([]byte, error){
		"deploy/prometheus/alerts.yaml":                         func() ([]byte, error) { return Rules(Groups()) },
		"deploy/grafana/provisioning/alerting/solobeat.yaml":    func() ([]byte, error) { return GrafanaRules(Groups()) },
		"deploy/grafana/provisioning/datasources/solobeat.yaml": GrafanaDataSource,
		"deploy/grafana/provisioning/dashboards/solobeat.yaml":  GrafanaProvider,
	} {
		text, err := write()
		if err != nil {
			return nil, err
		}
		files[name] = text
	}
	for _, d := range Dashboards() {
		text, err := d.JSON()
		if err != nil {
			return nil, err
		}
		files["deploy/grafana/dashboards/"+d.UID+".json"] = text
	}
	return files, nil
}
