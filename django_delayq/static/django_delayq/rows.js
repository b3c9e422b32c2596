/* A button in each row, for the action that one press may do. Without a script, the menu above the rows has it. */
"use strict";
{
    const root = document.getElementById("delayq");
    const PLACE = "delayq.place";

    const addButtons = () => {
        for (const box of root.querySelectorAll("table[data-row-action] input[name=row]")) {
            const row = box.closest("tr");
            if (row.querySelector("button[name=one]")) continue;
            const button = document.createElement("button"), text = box.closest("table").dataset.rowAction;
            Object.assign(button, { name: "one", value: box.value, textContent: text });
            button.setAttribute("aria-label", `${text}: ${box.getAttribute("aria-label")}`);
            const cell = row.insertCell();
            cell.className = "act";
            cell.append(button);
        }
    };
    // The next row stays under the pointer.
    root.addEventListener("submit", (event) => {
        if (event.submitter?.name !== "one") return;
        try { sessionStorage.setItem(PLACE, `${scrollY} ${location.pathname}`); } catch { /* The page then begins at its top. */ }
    });
    const restorePlace = () => {
        try {
            const place = sessionStorage.getItem(PLACE);
            sessionStorage.removeItem(PLACE);
            if (place?.endsWith(` ${location.pathname}`)) scrollTo(0, parseFloat(place));
        } catch { /* As above. */ }
    };

    addButtons();
    restorePlace();
    // A live update and a search that goes on bring other rows.
    new MutationObserver(addButtons).observe(document.getElementById("delayq-live"), { childList: true, subtree: true });
}
