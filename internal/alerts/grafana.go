package alerts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// What Grafana's provisioning calls our things. Rules and dashboards name the
// data source by its uid, so that is fixed.
const (
	folder     = "Solobeat"
	dataSource = "prometheus"
	expression = "__expr__"
)

type object = map[string]any

// provisioning is the alert file for Grafana: the same alerts, with query and
// comparison apart.
type provisioning struct {
	APIVersion int            `yaml:"apiVersion"`
	Groups     []grafanaGroup `yaml:"groups"`
}

type grafanaGroup struct {
	OrgID    int           `yaml:"orgId"`
	Name     string        `yaml:"name"`
	Folder   string        `yaml:"folder"`
	Interval string        `yaml:"interval"`
	Rules    []grafanaRule `yaml:"rules"`
}

type grafanaRule struct {
	UID          string            `yaml:"uid"`
	Title        string            `yaml:"title"`
	Condition    string            `yaml:"condition"`
	For          string            `yaml:"for"`
	NoDataState  string            `yaml:"noDataState"`
	ExecErrState string            `yaml:"execErrState"`
	Labels       map[string]string `yaml:"labels,flow"`
	Annotations  annotations       `yaml:"annotations"`
	Data         []grafanaQuery    `yaml:"data"`
}

type grafanaQuery struct {
	RefID             string         `yaml:"refId"`
	DatasourceUID     string         `yaml:"datasourceUid"`
	RelativeTimeRange map[string]int `yaml:"relativeTimeRange,flow"`
	Model             object         `yaml:"model,flow"`
}

// GrafanaRules is the provisioning file of Grafana's own alerting.
func GrafanaRules(groups []Group) ([]byte, error) {
	f := provisioning{APIVersion: 1}
	for _, g := range groups {
		group := grafanaGroup{OrgID: 1, Name: g.Name, Folder: folder, Interval: "1m"}
		for _, a := range g.Alerts {
			group.Rules = append(group.Rules, a.grafana())
		}
		f.Groups = append(f.Groups, group)
	}
	return encode("# The alerts of deploy/prometheus/alerts.yaml for Grafana's own alerting. Use one of\n# the two, not both.\n", f)
}

func (a Alert) grafana() grafanaRule {
	noData := "OK"
	if a.NoDataFires {
		noData = "Alerting"
	}
	compare := map[Op]string{Above: "gt", Below: "lt"}[a.Op]
	// An instant query needs no reduction; with the comparison in it no answer
	// would be missing data.
	return grafanaRule{
		UID: "solobeat-" + strings.ToLower(a.Name), Title: a.Name, Condition: "C", For: grafanaFor(a.For),
		NoDataState: noData, ExecErrState: "Error", Labels: map[string]string{"severity": a.Severity},
		Annotations: annotations{a.Summary, strings.ReplaceAll(a.Description, "$value", "$values.A.Value"), a.RunbookURL()},
		Data: []grafanaQuery{
			{"A", dataSource, map[string]int{"from": 600, "to": 0}, object{
				"refId": "A", "expr": a.Query, "instant": true, "range": false, "editorMode": "code",
			}},
			{"C", expression, map[string]int{"from": 0, "to": 0}, object{
				"refId": "C", "type": "threshold", "expression": "A",
				"conditions": []object{{"evaluator": object{"type": compare, "params": []float64{a.Threshold}}}},
			}},
		},
	}
}

func grafanaFor(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	return duration(d)
}

// GrafanaDataSource and GrafanaProvider are the provisioning files of the data
// source that rules name, and of the folder with the dashboards.
func GrafanaDataSource() ([]byte, error) {
	return encode("# The data source that Solobeat's rules name; change the url.\n", object{
		"apiVersion":  1,
		"datasources": []object{{"name": "Prometheus", "type": "prometheus", "uid": dataSource, "access": "proxy", "url": "http://prometheus:9090"}},
	})
}

// GrafanaProvider is the provisioning file of the dashboards.
func GrafanaProvider() ([]byte, error) {
	return encode("# Where Grafana finds Solobeat's dashboards; change the path.\n", object{
		"apiVersion": 1,
		"providers": []object{{
			"name": "solobeat", "orgId": 1, "folder": folder, "type": "file", "options": object{"path": "/etc/grafana/dashboards/solobeat"},
		}},
	})
}

// JSON is the dashboard as Grafana imports it, one panel a line.
func (d Dashboard) JSON() ([]byte, error) {
	variables := []object{{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}}
	if d.ByJob {
		const values = "label_values(solobeat_schedule_ticks_total, schedule)"
		variables = append(variables, object{
			"name": "schedule", "label": "Job", "type": "query", "datasource": variableSource(), "definition": values,
			"query": object{"query": values, "refId": "schedule"}, "refresh": 2, "sort": 1,
		})
	}
	other := Dashboards()[0]
	if other.UID == d.UID {
		other = Dashboards()[1]
	}
	head := []struct {
		key   string
		value any
	}{
		{"uid", d.UID},
		{"title", d.Title},
		{"description", d.Description},
		{"tags", []string{"solobeat"}},
		{"schemaVersion", 39},
		{"editable", true},
		{"timezone", "browser"},
		{"refresh", "30s"},
		{"time", object{"from": "now-6h", "to": "now"}},
		{"annotations", object{"list": []object{}}},
		{"templating", object{"list": variables}},
		{"links", []object{
			link(other.Title, "/d/"+other.UID, false), link("Runbooks", repository+"deploy/runbooks", true),
		}},
	}
	var b bytes.Buffer
	b.WriteString("{\n")
	for _, h := range head {
		value, err := compact(h.value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "  %q: %s,\n", h.key, value)
	}
	b.WriteString("  \"panels\": [\n")
	for i, p := range d.panels() {
		value, err := compact(p)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteString(",\n")
		}
		b.WriteString("    " + value)
	}
	b.WriteString("\n  ]\n}\n")
	return b.Bytes(), nil
}

// compact is v as JSON in one line, with < and > as they are.
func compact(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", fmt.Errorf("alerts: %w", err)
	}
	return strings.TrimSpace(b.String()), nil
}

func link(title, url string, blank bool) object {
	return object{
		"title": title, "type": "link", "url": url, "icon": "external link", "tooltip": "", "tags": []string{},
		"asDropdown": false, "targetBlank": blank, "includeVars": false, "keepTime": !blank,
	}
}

// variableSource is the data source that the viewer has chosen.
func variableSource() object { return object{"type": "prometheus", "uid": "${datasource}"} }

// columns is the width of Grafana's grid.
const columns = 24

// panels lays the sections out: a heading, then its panels from left to right.
func (d Dashboard) panels() (all []object) {
	y, id := 0, 0
	place := func(x, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }
	for _, s := range d.Sections {
		id++
		all = append(all, object{"id": id, "type": "row", "title": s.Title, "collapsed": false, "gridPos": place(0, columns, 1), "panels": []object{}})
		y++
		x, high := 0, 0
		for _, p := range s.Panels {
			if x+p.Width > columns {
				x, y, high = 0, y+high, 0
			}
			id++
			all = append(all, p.json(id, place(x, p.Width, p.Height)))
			x, high = x+p.Width, max(high, p.Height)
		}
		y += high
	}
	return all
}

func (p Panel) json(id int, place object) object {
	var targets []object
	for i, t := range p.Targets {
		target := object{
			"refId": string(rune('A' + i)), "datasource": variableSource(), "expr": t.Expr, "editorMode": "code",
			"range": p.Kind == TimeSeries, "instant": p.Kind != TimeSeries,
		}
		if t.Legend != "" {
			target["legendFormat"] = t.Legend
		}
		if p.Kind == Table {
			target["format"] = "table"
		}
		targets = append(targets, target)
	}
	steps := []object{{"color": "green", "value": nil}}
	if p.Bad != 0 {
		steps = append(steps, object{"color": "red", "value": p.Bad})
	}
	defaults := object{"unit": p.Unit, "thresholds": object{"mode": "absolute", "steps": steps}}
	if p.Kind == TimeSeries {
		defaults["custom"] = object{"drawStyle": "line", "fillOpacity": 10, "showPoints": "auto"}
	}
	panel := object{
		"id": id, "type": string(p.Kind), "title": p.Title, "gridPos": place, "datasource": variableSource(), "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}}, "options": p.Kind.options(),
	}
	if p.Description != "" {
		panel["description"] = p.Description
	}
	if p.Kind == Table {
		panel["transformations"] = []object{{"id": "organize", "options": object{"excludeByName": object{"Time": true, "Value": true}}}}
	}
	return panel
}

func (k Kind) options() object {
	switch k {
	case Stat:
		return object{
			"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value", "graphMode": "none", "justifyMode": "auto",
			"textMode": "value", "orientation": "auto", "wideLayout": true, "showPercentChange": false, "percentChangeColorMode": "standard",
		}
	case Table:
		return object{"showHeader": true, "cellHeight": "sm", "frameIndex": 0}
	default:
		return object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		}
	}
}
